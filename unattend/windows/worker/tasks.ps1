# For work that Windows refuses in remote sessions: a task does it as SYSTEM. Not called by winlab: updates.ps1 and
# seal.ps1 read this after common.ps1.

# Runs $Text as C:\winlab\NAME.ps1 in the account SYSTEM, for $Minutes at most. Lines that it writes to NAME.log are
# passed on. The last thing that it writes is the result, NAME.json; $Lost is the error if that is missing
function Invoke-AsSystem([string]$Name, [string]$Text, [int]$Minutes, [string]$Lost) {
    $task = "winlab-$Name"
    $file = "$WinlabFolder\$Name.ps1"
    $log = "$WinlabFolder\$Name.log"
    $outcome = "$WinlabFolder\$Name.json"
    New-Folder $WinlabFolder
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $log, $outcome
    Write-Text $file $Text | Out-Null
    $action = New-ScheduledTaskAction -Execute 'powershell.exe' `
        -Argument "-NoProfile -NonInteractive -ExecutionPolicy Bypass -File $file"
    $limit = New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([TimeSpan]::FromMinutes($Minutes))
    Register-ScheduledTask -TaskName $task -Action $action -Settings $limit -User 'SYSTEM' -RunLevel Highest -Force |
        Out-Null
    Start-ScheduledTask -TaskName $task
    $told = 0
    $queued = 0
    while ($true) {
        Start-Sleep -Seconds 5
        $ended = Test-Path -LiteralPath $outcome # checked first: then no lines can follow those that are read here
        $lines = @(Get-Content -LiteralPath $log -Encoding UTF8 -ErrorAction SilentlyContinue)
        foreach ($line in $lines | Select-Object -Skip $told) { Write-Progressing $line }
        $told = $lines.Count
        if ($ended) { break }
        $state = "$((Get-ScheduledTask -TaskName $task).State)"
        if ($state -eq 'Running') { continue }
        # right after Windows has started for the first time, a task may wait for a while
        if ($state -eq 'Queued' -and $queued -lt 60) { $queued += 5; continue }
        # the task may have ended a moment after the result was checked
        Start-Sleep -Seconds 5
        if (-not (Test-Path -LiteralPath $outcome)) { throw "$Lost ($state)." }
    }
    Unregister-ScheduledTask -TaskName $task -Confirm:$false
    $result = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($outcome))
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $file, $log, $outcome
    return $result
}
