@echo off
rem Windows PE, while Setup runs: what went wrong there is in memory alone, and gone with a restart. This tells it on
rem the first serial port: that Setup has begun, the disks, the drivers' folder, and Setup's logs of errors as they grow.
rem The answer file starts it with the CD's drive as its parameter. Nothing here may stop Setup: so there is no diskpart,
rem whose service partitions the disk for Setup just now.
setlocal enabledelayedexpansion

rem The class installer that gives the port its name does not run in Windows PE
for /f "delims=" %%k in ('reg query HKLM\SYSTEM\CurrentControlSet\Enum\ACPI\PNP0501 2^>nul') do call :name "%%k"
set tries=0
:port
(echo winlab: phase=windowsPE>COM1) 2>nul && goto begin
set /a tries+=1
if %tries% lss 60 (call :nap & goto port)
exit /b 0

:begin
(ver & reg query HKLM\SYSTEM\CurrentControlSet\Services\disk\Enum)>X:\winlab-pe.txt 2>&1
(mountvol & dir /s /b %1\$WinPEDriver$)>>X:\winlab-pe.txt 2>&1
(type X:\winlab-pe.txt)>COM1 2>nul
:look
call :grown 1 "X:\Windows\setuperr.log"
call :grown 2 "X:\Windows\Panther\setuperr.log"
call :grown 3 "X:\$WINDOWS.~BT\Sources\Panther\setuperr.log"
call :grown 4 "C:\$WINDOWS.~BT\Sources\Panther\setuperr.log"
call :nap
call :nap
goto look

rem Names the port whose key is %1. pnputil can restart a device since Windows Server 2022. Before, its driver must be
rem loaded, and what pnputil ends with does not show that
:name
if /i "%~nx1"=="PNP0501" exit /b 0
reg add "%~1\Device Parameters" /v PortName /t REG_SZ /d COM1 /f >nul 2>&1
pnputil /restart-device "ACPI\PNP0501\%~nx1" >nul 2>&1
drvload X:\Windows\INF\msports.inf >nul 2>&1
exit /b 0

rem Some seconds. Without TCP/IP ping returns at once
:nap
ping -n 3 127.0.0.1 >nul 2>&1 || waitfor /t 2 winlab >nul 2>&1
exit /b 0

rem Tells the file %2, if it has another size than before
:grown
if not exist "%~2" exit /b 0
if "%~z2"=="0" exit /b 0
if "%~z2"=="!size%1!" exit /b 0
set "size%1=%~z2"
(echo winlab: log=%~2& type "%~2")>COM1 2>nul
exit /b 0
